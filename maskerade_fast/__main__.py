"""``python -m maskerade_fast`` is ``maskerade-fast``."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
