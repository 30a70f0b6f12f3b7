"""What every layer stands on: errors, lifecycle, clock, atomic files. Imports nothing of ours."""
