"""A grid of cells, computed in this process or on a Dask cluster, into a folder that can be taken up again.

A cell is a function, 'module:function', and its configuration; it is known by the digest of both. Rows of a finished
cell are one Parquet file, written whole or not at all, so that what is there need not be computed again.
"""

from analyses.engine.cells import Cell, make_cells
from analyses.engine.folder import Folder
from analyses.engine.run import CellState, dry_run, run_cells

__all__ = ["Cell", "CellState", "Folder", "dry_run", "make_cells", "run_cells"]
