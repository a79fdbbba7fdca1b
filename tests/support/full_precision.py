"""Copy a model with its weights in full precision.

Quantized weights make the engine quantize its intermediate values, too. Their rounding then depends
on the other tokens of a pass. In full precision, two ways to decode differ only in the order of
sums.
"""

from __future__ import annotations

from pathlib import Path

import gguf
from gguf_file import read_gguf
from make_test_models import add_entries


def write_in_full_precision(model: Path, out: Path) -> Path:
    """Write a copy of a GGUF file whose matrices are f32, and return its path."""
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    entries = {each.key.decode(): each for each in read_gguf(model, with_tensors=False).entries}
    written = ("general.architecture", "general.file_type")
    add_entries(writer, {key: entry for key, entry in entries.items() if key not in written})
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out
