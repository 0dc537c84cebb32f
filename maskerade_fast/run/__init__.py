"""Runs: what to evaluate until a budget is spent, and the posterior of what was evaluated.

`marginalise` checks its arguments and makes a `problem.Problem`, in standardised units. A recipe is a `drive.Run` on
it: `steps()` yields a frozen state after each batch, `posterior(state)` says what a state means. `drive.drive` goes
through the steps and alone knows of the user: units, history, the progress bar, the callback and Ctrl-C.
"""
