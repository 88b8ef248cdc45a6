"""Pages to look at: all runs of a folder as one HTML file that needs nothing else.

```python
from shiftproof.report import write_report

write_report("runs", "runs/report.html")
```
"""

from shiftproof.report.page import write_report

__all__ = ["write_report"]
