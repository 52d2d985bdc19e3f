"""Fine-tuned: each task's own checkpoint, the upper bound."""

from tallmasks.methods import FineTuned, Vector, method


@method(name="fine_tuned", order=70, title="Fine-tuned", paper="theta_t itself", usage=FineTuned())
def fine_tuned(task_vector: Vector) -> Vector:
    """tau_t unchanged."""
    return task_vector
