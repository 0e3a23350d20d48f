"""One reader for each format of files; `reader.py` is their contract, `stream.py` the bytes under them."""
