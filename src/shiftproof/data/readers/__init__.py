"""What a user brings, read into a data set: tables, SMILES, arrays, PyG and NetworkX graphs, folders of images.

`loading` is the one way in (`load`); `sources` knows where files are looked for, `storage` keeps a data set on disk.
Importing this package registers the readers of files under their endings.
"""

from shiftproof.data.readers import sample_files, table_files, tu  # noqa: F401
