"""Operations on batches of mixtures: each checks its arguments, chooses the backend and passes the memory bound on."""
