"""An executable model of delivery: §2 and §4 of docs/contract.md, searched exhaustively on small trees (README.md)."""
