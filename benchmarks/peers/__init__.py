"""Anabranch beside other incremental indexers: same files, chunker, embedder and Postgres.

python -m benchmarks.peers install
python -m benchmarks.peers run --documents 2000 --out results.json
python -m benchmarks.peers table results.json

The figures of one run can be compared with each other, and with no other run's.
"""
