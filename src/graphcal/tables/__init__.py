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
arrays     scores in memory: NumPy, torch, pandas, Arrow
calibration  `gc.calibrate`, and a table of files calibrated
estimator  `CalibratedScores`, for scikit-learn
scorer     one function, RecordBatch -> RecordBatch; calibrated blocks (C, n)
profiles   what predictions are like; drift
contexts   the context of a graph-aware calibration, for a table of any size
edge_files, row_numbers, edge_blocks, disk_columns, disk_contexts  its parts: ids, row numbers, blocks of edges, matrices, sums
jobs       a table cut into files to write
execution  threads, processes, Ray
scoring    `score`: all of that for a table of any size
exporting  `gc.export`; Parquet files, whole or not at all
"""
