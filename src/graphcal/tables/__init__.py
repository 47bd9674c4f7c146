"""Predictions as tables of files: read with nothing guessed, calibrated, scored at any size.

files         files of any format as Arrow tables and batches, within a budget (array_files: npz and pt)
score_types   logits, log-probabilities, probabilities; zeros and rounding
classes       class names, and labels as class numbers
layouts       Wide, List, Long, TopLabel, Binary: each detects, reads and writes itself
sources       files of GraphStorm, GiGL, Neo4j and Kumo
labels        labels and splits, joined by id
metadata      what calibrators and tables store about tables
reading       `read_table`: all of the above in one call
edges         tables of edges; ids as row numbers
calibration   `graphcal.calibrate`, and a table of files calibrated (two_classes: the choice of ``auto`` for two classes)
estimator     `CalibratedScores`, for scikit-learn
scorer        one function, RecordBatch -> RecordBatch; calibrated blocks (C, n)
contexts      what a graph-aware calibration reads off the edges (disk_sums: edges and columns in files)
scoring       `score`: a table of any size, in threads or on Ray
writing       `graphcal.export`; Parquet files, whole or not at all
"""
