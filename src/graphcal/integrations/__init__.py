"""graphcal inside other people's tools. Each module needs its tool installed, and none is imported unless it is named:

lightning      a callback that calibrates a model when its training ends
torchmetrics   the calibration error, with its floor, as a metric
tracking       results and report in MLflow or Weights & Biases
"""
