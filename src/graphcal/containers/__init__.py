"""Files that hold more than their size: Parquet, Arrow, CSV, torch. What they unpack to is counted while they are read.

batches   the running budget of rows and bytes
parquet   arrow   csv_files   tensors
"""
