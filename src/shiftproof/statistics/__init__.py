"""Numbers about numbers: measures of predictions, intervals of estimates, tests of differences.

`metrics` holds the measures and `names` what they are called; `estimates` intervals by resampling; `significance` the
test of whether two methods differ beyond the luck of the seeds.
"""
