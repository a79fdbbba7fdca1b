"""Read and write Parquet files with pyarrow, an optional dependency."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import InvalidArgumentError, MissingFileError, NotSupportedError
from .columns import OutputColumns, cell_text
from .rows import InputTable, TableRow, check_distinct, check_unchanged

ROWS_AT_ONCE = 1024
"""The number of rows to hold in memory at a time, and the size of an output's row groups."""


def load_pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise NotSupportedError(
            "Parquet files require pyarrow: pip install 'eliza-ffi[parquet]'"
        ) from None
    return pyarrow


class ParquetTable(InputTable):
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrow = load_pyarrow()
        self._cell_errors = (ValueError, OverflowError, self._arrow.ArrowException)
        with self._file() as file:
            self.schema = file.schema_arrow
            self.n_rows = int(file.metadata.num_rows)
        self.columns = tuple(self.schema.names)
        check_distinct(path, self.columns)

    def rows(
        self, after: int = 0, columns: Collection[str] | None = None
    ) -> Generator[TableRow, None, None]:
        number = after
        for batch in self.batches(columns, after):
            for fields, error in self._values(batch):
                number += 1
                place = f"{self.path.name}, row {number}"
                yield TableRow(number, place, fields, error, number / self.n_rows)

    def batches(self, columns: Collection[str] | None = None, after: int = 0) -> Iterator[Any]:
        """Yield record batches with the given columns, in the file's order."""
        wanted = None if columns is None else [name for name in self.columns if name in columns]
        with self._file() as file:
            fields, found = (tuple(map(str, each)) for each in (self.schema, file.schema_arrow))
            check_unchanged(self.path, fields, found)
            groups, n_skipped = self._groups_after(file, after)
            if not groups:
                return
            try:
                for batch in file.iter_batches(
                    ROWS_AT_ONCE, row_groups=groups, columns=wanted, use_threads=False
                ):
                    skipped = min(n_skipped, len(batch))
                    n_skipped -= skipped
                    if skipped < len(batch):
                        yield batch.slice(skipped)
            except (self._arrow.ArrowException, OSError) as error:
                raise InvalidArgumentError(f"{self.path} is damaged: {error}") from error

    def _values(self, batch: Any) -> list[tuple[dict[str, Any], str | None]]:
        """Return the rows of a batch, each with an error if Python cannot represent a value."""
        try:
            read = batch
            for index, name in enumerate(batch.schema.names):
                column = _in_microseconds(self._arrow, batch.column(index))
                read = read.set_column(index, name, column)
            return [(fields, None) for fields in read.to_pylist()]
        except self._cell_errors:
            return [self._values_of_row(batch, index) for index in range(len(batch))]

    def _values_of_row(self, batch: Any, index: int) -> tuple[dict[str, Any], str | None]:
        fields: dict[str, Any] = {}
        error = None
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                fields[name] = self._value(column.slice(index, 1))
            except self._cell_errors as found:
                error = error or f"column {name!r} cannot be read: {found}"
        return fields, error

    def _value(self, cell: Any) -> Any:
        """Return the value of an array with one cell."""
        types, kind = self._arrow.types, cell.type
        try:
            cell_in_microseconds = _in_microseconds(self._arrow, cell)
        except self._arrow.ArrowInvalid:
            if types.is_timestamp(kind) or types.is_time64(kind):
                return cell.cast(self._arrow.string())[0].as_py().replace(" ", "T", 1)
            if types.is_duration(kind):
                raise ValueError(
                    f"Nanosecond duration {cell[0].value} is not a whole number of microseconds"
                ) from None
            raise
        try:
            return cell_in_microseconds[0].as_py()
        except UnicodeDecodeError:
            if not (types.is_string(kind) or types.is_large_string(kind)):
                raise
            return cell[0].as_buffer().to_pybytes().decode("utf-8", "surrogateescape")

    def _file(self) -> Any:
        if not self.path.is_file():
            raise MissingFileError(f"no such file: {self.path}; expected a table")
        try:
            return self._arrow.parquet.ParquetFile(self.path)
        except (self._arrow.ArrowException, OSError) as error:
            raise InvalidArgumentError(f"{self.path} is not a Parquet file: {error}") from error

    @staticmethod
    def _groups_after(file: Any, after: int) -> tuple[list[int], int]:
        """Return the row groups with rows after the first `after`, and how many rows to skip."""
        groups = list(range(file.metadata.num_row_groups))
        while groups and file.metadata.row_group(groups[0]).num_rows <= after:
            after -= file.metadata.row_group(groups.pop(0)).num_rows
        return groups, after


def _in_microseconds(pa: Any, column: Any) -> Any:
    """Convert the times and durations of a column to microseconds, Python's resolution.

    pyarrow reads nanoseconds as pandas objects if pandas is installed. Otherwise it rejects or
    truncates them. ArrowInvalid is raised for a value that is not a whole number of microseconds.
    """
    kind = _microsecond_type(pa, column.type)
    return column if kind == column.type else column.cast(kind)


def _microsecond_type(pa: Any, kind: Any) -> Any:
    types = pa.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_time64(kind):
        return pa.time64("us")
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_microsecond_type(pa, kind.value_type)))
    if types.is_struct(kind):
        return pa.struct([each.with_type(_microsecond_type(pa, each.type)) for each in kind])
    return kind


def write_parquet(
    file: BinaryIO, rows: Iterable[Mapping[str, Any]], columns: OutputColumns, table: InputTable
) -> None:
    """Write the rows of an output; see :func:`~eliza_ffi.tables.file_formats.write_output`."""
    pa = load_pyarrow()
    converted = {name: arrow_type(pa, kind) for name, kind in columns.types.items()}
    copied: dict[str, Any] = {}
    if isinstance(table, ParquetTable) and columns.kept:
        copied = {output: table.schema.field(name).type for output, name in columns.kept.items()}
        chunks = _with_copied_columns(rows, columns.kept, table)
    else:
        converted |= _inferred_types(pa, rows, columns.kept)
        left = iter(rows)
        chunks = ((cells, {}) for cells in iter(lambda: list(islice(left, ROWS_AT_ONCE)), []))
    types = copied | converted
    schema = pa.schema([(name, types[name]) for name in columns.names])
    with pa.parquet.ParquetWriter(file, schema) as writer:
        for cells, arrays in chunks:
            for name, kind in converted.items():
                arrays[name] = arrow_array(pa, kind, [row[name] for row in cells])
            written = [arrays[name] for name in columns.names]
            writer.write_table(pa.Table.from_arrays(written, schema=schema))


def _with_copied_columns(
    rows: Iterable[Mapping[str, Any]], kept: Mapping[str, str], table: ParquetTable
) -> Iterator[tuple[list[Mapping[str, Any]], dict[str, Any]]]:
    """Yield all rows in chunks, each with its kept columns, copied from a Parquet input."""
    left = iter(rows)
    for batch in table.batches(set(kept.values())):
        cells = list(islice(left, len(batch)))
        if not cells:
            return
        copied = batch.slice(0, len(cells))
        yield cells, {output: copied.column(name) for output, name in kept.items()}
    if next(left, None) is not None:
        raise InvalidArgumentError(f"{table.path} was changed: it has fewer rows than before")


def _inferred_types(
    pa: Any, rows: Iterable[Mapping[str, Any]], kept: Collection[str]
) -> dict[str, Any]:
    """Return the types of kept columns. A column with values of several types is text."""
    kinds: dict[str, set[str]] = {name: set() for name in kept}
    for row in rows:
        for name, found in kinds.items():
            found.add(_kind(row[name]))
    return {name: arrow_type(pa, _common(found)) for name, found in kinds.items()}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        if -(2**53) <= value <= 2**53:
            return "int"
        return "wide int" if -(2**63) <= value < 2**63 else "text"
    return "float" if isinstance(value, float) else "text"


def _common(kinds: set[str]) -> str:
    kinds = kinds - {"null"}
    if kinds == {"int", "float"}:  # no wide int: a float may not represent it exactly
        return "float"
    if "wide int" in kinds and kinds <= {"int", "wide int"}:
        return "int"
    return kinds.pop() if len(kinds) == 1 else "text"


def arrow_type(pa: Any, kind: str) -> Any:
    """Return the Arrow type for a type of :attr:`OutputColumns.types`."""
    types = {
        "int": pa.int64,
        "bool": pa.bool_,
        "float": pa.float64,
        "text": pa.string,
        "texts": lambda: pa.list_(pa.string()),
    }
    return types[kind]()


def arrow_array(pa: Any, kind: Any, values: list[Any]) -> Any:
    """Convert values to an array; for a column of strings, format them as in CSV."""
    if pa.types.is_string(kind):
        values = [None if value is None else cell_text(value) for value in values]
    elif pa.types.is_list(kind):
        values = [value and [cell_text(each) for each in value] for value in values]
    return pa.array(values, kind)
