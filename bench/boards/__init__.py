"""Public boards for typed decisions: Decision Index, JevBench and typed-decisions.

    python -m bench.boards --kit DIR [--limit N] [--server URL] [--json FILE]

`DIR` is a folder that you have: a built suite of Decision Index (``*-rows.jsonl`` or
``*-rows.jsonl.gz``), a checkout of JevBench (``datasets/public/*.jsonl``), or a copy of the data
set LocalLLaMA/typed-decisions (``all/test-*.parquet``). No rows are in this repository.

The figures are those of `eliza-ffi evaluate`. They show where a model is wrong, and are not the
score of a board: Decision Index subtracts chance and has a scorer for each of its benchmarks, and
JevBench also counts speed and cost. For a score that can be published, start `eliza-ffi serve` and
run the program of the board, which asks ``/v1/systemone``:

    python -m decision_index run --engine http --option base_url=http://127.0.0.1:8080 \\
        --option model=MODEL
    TYPESAFE_API_KEY=unused python -m jevbench.cli run --adapter typesafe \\
        --endpoint http://127.0.0.1:8080 --model MODEL --tasks datasets/public/easy.jsonl \\
        --results FILE
"""
