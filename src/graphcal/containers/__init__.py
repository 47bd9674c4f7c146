"""Files that hold more than their size: Parquet, Arrow, Avro, torch. What they unpack to is measured before memory is taken.

parquet   pages, from their headers          arrow   buffers, from the messages
avro      blocks, inflated piece by piece    tensors zip members and shapes
"""
