"""Merges of later papers as their equations state them, in plain NumPy and float64, with no thought for speed.

Task matrices are float [T, m, n], task vectors [T, P].
"""

import numpy as np


def tsv_m(matrices):
    """Top floor(r / T) triplets of each task, block by block; U and V by the inverse square root of their Grams;
    a task without any is left out."""
    rank = int(min(matrices.shape[1:]) / len(matrices))
    blocks = [np.linalg.svd(matrix.astype(np.float64), full_matrices=False) for matrix in matrices if matrix.any()]
    u = np.concatenate([left[:, :rank] for left, _, _ in blocks], axis=1)
    v = np.concatenate([right[:rank] for _, _, right in blocks], axis=0)
    s = np.concatenate([singular[:rank] for _, singular, _ in blocks])
    return u @ inverse_root(u.T @ u) @ np.diag(s) @ inverse_root(v @ v.T) @ v


def inverse_root(gram):
    values, vectors = np.linalg.eigh(gram)
    return vectors @ np.diag(values**-0.5) @ vectors.T


def iso_cts(matrices, common=0.8):
    """Shared directions of the sum, then each task's own outside of them, by projections on eigenvectors."""
    matrices = matrices.astype(np.float64)
    tasks, rank = len(matrices), min(matrices.shape[1:])
    own = round((rank - int(rank * common)) / tasks)
    parts = [(matrices.sum(0), rank - own * tasks)]
    base = eigenvectors(parts[0][0] @ parts[0][0].T)[:, : parts[0][1]]
    parts += [(matrix - base @ base.T @ matrix, own) for matrix in matrices]
    u, s, v = [], [], []
    for matrix, count in parts:
        right = eigenvectors(matrix.T @ matrix)[:, :count]
        images = matrix @ right
        lengths = np.linalg.norm(images, axis=0)
        u.append(images / lengths)
        s.append(lengths)
        v.append(right.T)
    u, v = np.concatenate(u, axis=1), np.concatenate(v, axis=0)
    return np.concatenate(s).mean() * u @ inverse_root(u.T @ u) @ inverse_root(v @ v.T) @ v


def eigenvectors(symmetric):
    """In the order of falling eigenvalues."""
    return np.linalg.eigh(symmetric)[1][:, ::-1]


def breadcrumbs(tensors, middle, outliers):
    """Row by row, value by value."""
    total = np.zeros(tensors.shape[1:], np.float64)
    for tensor in tensors:
        length = tensor.shape[-1]
        for place in np.ndindex(tensor.shape[:-1]):
            falling = sorted(range(length), key=lambda i: -abs(tensor[place][i]))
            for i in falling[int(length * outliers) : int(length * outliers) + int(length * middle)]:
                total[place][i] += tensor[place][i]
    return total


def wudi(matrices, steps):
    """On the loss as it stands, by torch's own gradient and Adam in float64."""
    import torch

    given = torch.tensor(matrices, dtype=torch.float64)
    merged = given.sum(0).clone().requires_grad_()
    adam = torch.optim.Adam([merged], lr=1e-5)
    for _ in range(steps):
        adam.zero_grad()
        products = (merged - given) @ given.transpose(1, 2)
        (products.square().sum((1, 2)) / given.square().sum((1, 2))).sum().backward()
        adam.step()
    return merged.detach().numpy()


def swudi_a(matrices):
    """By the singular vectors of all tasks' rows at unit length; a task that changed nothing has no rows."""
    given = [matrix for matrix in matrices.astype(np.float64) if matrix.any()]
    rows = np.concatenate([matrix / np.linalg.norm(matrix) for matrix in given])
    _, singular, right = np.linalg.svd(rows, full_matrices=False)
    top = right[: int(np.ceil(singular.sum() ** 2 / (singular**2).sum()))]
    weighted = sum(matrix @ matrix.T @ matrix / (matrix**2).sum() for matrix in given)
    minimum = weighted @ np.linalg.pinv(rows.T @ rows)
    total = sum(given)
    return total + (minimum - total) @ top.T @ top


def dc_merge(matrices, keep=0.001):
    """Position by position in the basis of all tasks' top directions, only where both directions are of one task."""
    matrices = matrices.astype(np.float64)
    tasks, side = len(matrices), min(matrices.shape[1:])
    rank = int(side / tasks)
    parts = [np.linalg.svd(matrix, full_matrices=False) for matrix in matrices]
    u = np.concatenate([left[:, :rank] for left, _, _ in parts], axis=1)
    v = np.concatenate([right[:rank] for _, _, right in parts])
    u, v = u @ inverse_root(u.T @ u), inverse_root(v @ v.T) @ v
    cores = [u.T @ left[:, :rank] @ np.diag(s[:rank]) @ right[:rank] @ v.T for left, s, right in parts]
    limits = [sorted(abs(core).ravel())[-max(1, int(keep * side**2))] for core in cores]
    merged = np.zeros((rank * tasks,) * 2)
    for i, j in np.ndindex(merged.shape):
        values = [core[i, j] for core, limit in zip(cores, limits, strict=True) if abs(core[i, j]) >= limit]
        if i // rank == j // rank and sum(values):
            merged[i, j] = np.mean([value for value in values if value * sum(values) > 0])
    return u @ merged @ v


def esm(tensors, inputs):
    """Blocks of one layer: lists of [T, m, n] and T inputs [N, n]; by the singular vectors of the outputs' change."""
    merged = []
    for matrices, data in zip(tensors, inputs, strict=True):
        matrices = matrices.astype(np.float64)
        count, norms = matrices.shape[1] // len(matrices), [np.linalg.norm(matrix) for matrix in matrices]
        u, v = [], []
        for matrix, x, norm in zip(matrices, data, norms, strict=True):
            _, singular, right = np.linalg.svd(x @ matrix.T)
            scale = singular[:count] ** 0.3  # of eigenvalues, which are squares
            u += [right[i] * scale[i] / scale.mean() for i in range(count)]
            v += [right[i] @ matrix * scale[i] / scale.mean() * (norm / np.mean(norms)) ** 2 for i in range(count)]
        u, v = np.stack(u, axis=1), np.stack(v)
        lengths = np.sqrt((v**2).sum(0))
        v = v * lengths**2 / lengths.mean() ** 2
        u_scale, v_scale = (np.linalg.svd(part, compute_uv=False).mean() for part in (u, v))
        merged.append(2 * u_scale * v_scale * u @ inverse_root(u.T @ u) @ inverse_root(v @ v.T) @ v)
    norms = [np.linalg.norm(matrix) for matrix in merged]
    return [matrix * (norm / np.mean(norms)) ** 2 for matrix, norm in zip(merged, norms, strict=True)]


def adamerging(loss, vectors, parts, steps, rate):
    """The coefficients [T, parts] in 0 to 1, by torch's own gradient and Adam; ``parts``: slices of the vectors."""
    import torch

    given, values = torch.tensor(vectors), torch.full((len(vectors), len(parts)), 0.3, requires_grad=True)
    adam = torch.optim.Adam([values], lr=rate)
    for _ in range(steps):
        adam.zero_grad()
        shares = zip(values.clip(0, 1).T, parts, strict=True)
        loss(torch.cat([share @ given[:, part] for share, part in shares])).backward()
        adam.step()
    return values.detach().clip(0, 1).numpy()


def concrete(loss, vectors, parts, steps, rate, coefficient, generator):
    """The mask [P] over its mean in each part, by torch's own gradient and Adam; ``generator``: of the draws."""
    import torch

    def scaled(mask):
        return torch.cat([mask[part] / mask[part].mean() for part in parts])

    total = torch.tensor(vectors.sum(axis=0))
    logits = torch.zeros_like(total, requires_grad=True)
    adam = torch.optim.Adam([logits], lr=rate)
    for _ in range(steps):
        adam.zero_grad()
        noise = torch.empty_like(total).uniform_(1e-6, 1 - 1e-6, generator=generator).logit()
        loss(coefficient * total * scaled(((noise + logits) / 0.5).sigmoid())).backward()
        adam.step()
    return scaled((logits.detach() / 0.5).sigmoid()).numpy()


def pcb(vectors, frozen):
    """Intra- and inter-balancing over the whole vectors, the frozen values at the end."""
    tasks, moved = vectors.shape
    whole = np.concatenate([vectors.astype(np.float64), np.zeros((tasks, frozen))], axis=1)
    size = whole.shape[1]
    ordered = np.sort(abs(whole), axis=1)
    low, high = ordered[:, [int(size * 0.01)]], ordered[:, [int(size * 0.99 - 1)]]
    clamped = np.sign(whole) * abs(whole).clip(low, high)
    unit = np.sign(whole) * (abs(clamped).clip(low, high) - low) / (high - low)
    scores = np.stack(
        [np.exp(tasks * unit[i] ** 2) * sum(np.tanh(unit[i] * unit[j]) for j in range(tasks)) for i in range(tasks)]
    )
    floor = np.sort(scores, axis=1)[:, [int(size * 0.95)]]
    top = scores.max(axis=1, keepdims=True)
    share = (scores.clip(floor, top) - floor) / (top - floor)
    return ((clamped * share).sum(0) / share.sum(0).clip(1e-12))[:moved]


def lines(merged, blocks, alpha, beta):
    """Tensors by name, scaled by alpha + beta * l / (L - 1), with the block l of each given (None outside)."""
    last = max(number for number in blocks.values() if number is not None)
    return {
        name: value * (alpha if blocks[name] is None else alpha + beta * blocks[name] / last)
        for name, value in merged.items()
    }
