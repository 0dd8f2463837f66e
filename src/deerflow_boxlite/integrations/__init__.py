"""Boxes behind other harnesses' sandbox contracts. Each module needs the extra of its own name."""
