"""Runs: `marginalise`, the two recipes that spend its budget, the loop that drives them, and the result.

`marginalise` checks its arguments and makes a `Problem` in standardised units. A recipe is a `drive.Run` on it:
`steps()` yields a frozen state after each batch, and `posterior(state)` returns the posterior of a state. `drive.drive`
runs the steps and alone deals with the user: units, history, progress bar, callback and Ctrl-C.
"""
