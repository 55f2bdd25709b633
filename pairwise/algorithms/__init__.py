"""Algorithms: sensitivities, schedules and the runs that plans close over."""
