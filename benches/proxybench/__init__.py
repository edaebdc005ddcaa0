"""The parts of benches/run.py: processes, meter, systems, load, scenarios, report."""
