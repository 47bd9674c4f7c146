"""Serve a model with its calibration: on whole graphs, on sampled batches, and exported by torch.export or ONNX."""

from graphcal.serving.calibrated_model import CalibratedModel
from graphcal.serving.torch_export import Exportable, export_onnx, export_program

__all__ = ["CalibratedModel", "Exportable", "export_onnx", "export_program"]
