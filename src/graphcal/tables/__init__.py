"""Predictions as tables of files: read with nothing guessed, calibrated, scored at any size.

shards     files of any format as Arrow tables and batches
kinds      logits, log-probabilities, probabilities; zeros and rounding
layouts    wide, list, long, top-label, binary: which columns hold what
blocks     scores (C, n) of a batch
pivots     long and top-label tables as blocks
classes    class names, and labels as class numbers
sources    the files of GraphStorm, GiGL, Neo4j and Kumo
joining    rows of two tables by id
splits     which rows are fitted on, which measure
labelling  labels and splits, from the table or from files of their own
reading    `read_table`: all of the above in one call
"""
