"""Pages to look at, each one HTML file that needs nothing else: all runs of a folder, the audit of a node graph,
or measured tables beside the printed ones.

```python
from shiftproof.report import write_report

write_report("runs", "runs/report.html")
```
"""

from shiftproof.report.audit import write_audit
from shiftproof.report.bench import write_comparison, write_leaderboard
from shiftproof.report.page import write_report

__all__ = ["write_audit", "write_comparison", "write_leaderboard", "write_report"]
