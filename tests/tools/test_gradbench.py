"""gpuad as a tool of GradBench: each eval's answers at small sizes against the objective written with NumPy and its differences, the
messages, and an exchange of an eval with two tools. No checkout is needed."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gradbench import exchange, published, tool
from benchmarks.gradbench.evals import NAMES, functions_of

Array = np.ndarray[Any, np.dtype[np.float64]]


def answered(module: str, function: str, given: dict[str, Any]) -> Any:
    """The output that the tool answers with, after two runs more than one: what a run leaves behind must not matter."""
    answer = tool.answer({"id": 0, "kind": "evaluate", "module": module, "function": function, "input": given | {"min_runs": 2}})
    assert answer["success"], answer["error"]
    assert [t["name"] for t in answer["timings"]] == ["prepare", "evaluate", "evaluate"]
    return json.loads(json.dumps(answer["output"]))


def differences(value: Callable[[Array], Any], at: Array, step: float = 1e-6) -> Array:
    """Central differences of a function of a flat array, the derivative by each entry last."""
    columns = []
    for k in range(at.size):
        higher, lower = at.copy(), at.copy()
        higher.flat[k] += step
        lower.flat[k] -= step
        columns.append((np.asarray(value(higher)) - np.asarray(value(lower))) / (2 * step))
    return np.stack(columns, axis=-1)


# --- the evals -----------------------------------------------------------------------------------------------------------------------


def test_lse() -> None:
    x = 100 * np.random.default_rng(1).normal(size=1500)
    given = {"x": x.tolist()}
    e = np.exp(x - x.max())
    assert answered("lse", "primal", given) == pytest.approx(math.log(e.sum()) + x.max(), rel=1e-14)
    np.testing.assert_allclose(answered("lse", "gradient", given), e / e.sum(), rtol=1e-12)


def test_llsq() -> None:
    x = np.random.default_rng(2).normal(size=7)
    t = np.linspace(-1, 1, 101)

    def half_squares(x: Array) -> Any:
        return 0.5 * ((np.sign(t) - np.polynomial.polynomial.polyval(t, x)) ** 2).sum()

    given = {"x": x.tolist(), "n": 101}
    assert answered("llsq", "primal", given) == pytest.approx(half_squares(x), rel=1e-13)
    np.testing.assert_allclose(answered("llsq", "gradient", given), differences(half_squares, x), rtol=1e-7, atol=1e-7)


def test_ode_has_the_closed_form_while_its_terms_are_those_of_the_method() -> None:
    """y[i](2) is the product of x[0] to x[i] times 2^(i + 1) / (i + 1)!, which the method of order 4 has without error up to i = 3."""
    x = np.random.default_rng(3).uniform(0.5, 1, 4)
    given = {"x": x.tolist(), "s": 3}
    exact = np.cumprod(x) * [2.0 ** (i + 1) / math.factorial(i + 1) for i in range(4)]
    np.testing.assert_allclose(answered("ode", "primal", given), exact, rtol=1e-13)
    np.testing.assert_allclose(answered("ode", "gradient", given), exact[-1] / x, rtol=1e-12)


@pytest.mark.nightly
def test_ode_beyond() -> None:
    x = np.random.default_rng(4).uniform(0.5, 1, 400)
    given = {"x": x[:9].tolist(), "s": 2}
    found = differences(lambda x: answered("ode", "primal", {"x": x.tolist(), "s": 2})[-1], x[:9])
    np.testing.assert_allclose(answered("ode", "gradient", given), found, rtol=1e-7, atol=1e-9)
    assert not np.any(answered("ode", "gradient", {"x": x.tolist(), "s": 2})[:300])  # two steps reach eight entries back


@pytest.mark.one_of(2)
@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_det(n: int) -> None:
    a = np.random.default_rng(n).normal(size=(n, n))
    given = {"A": a.ravel().tolist(), "ell": n}
    assert answered("det", "primal", given) == pytest.approx(np.linalg.det(a), rel=1e-12)
    np.testing.assert_allclose(answered("det", "gradient", given), (np.linalg.det(a) * np.linalg.inv(a).T).ravel(), rtol=1e-9)


def test_kmeans() -> None:
    points = np.random.default_rng(5).random((150, 3))
    centroids = points[:6] + 0.01
    distances = ((points[:, None] - centroids) ** 2).sum(axis=-1)
    nearest = distances.argmin(axis=1)
    given = {"points": points.tolist(), "centroids": centroids.tolist()}
    assert answered("kmeans", "cost", given) == pytest.approx(distances.min(axis=1).sum(), rel=1e-13)
    means = np.stack([points[nearest == c].mean(axis=0) for c in range(6)])  # where Newton's step leads
    np.testing.assert_allclose(answered("kmeans", "dir", given), centroids - means, rtol=1e-9, atol=1e-13)


def test_gmm() -> None:
    d, k, n = 3, 4, 70
    rng = np.random.default_rng(6)
    shapes = {"alpha": (k,), "mu": (k, d), "q": (k, d), "l": (k, d * (d - 1) // 2)}
    given: dict[str, Any] = {"d": d, "k": k, "n": n, "m": 2, "gamma": 0.7, "x": rng.normal(size=(n, d)).tolist()}
    start = np.concatenate([rng.normal(size=shape).ravel() for shape in shapes.values()])

    def parts(flat: Array) -> dict[str, Array]:
        ends = np.cumsum([math.prod(s) for s in shapes.values()])[:-1]
        return {name: part.reshape(shapes[name]) for name, part in zip(shapes, np.split(flat, ends), strict=True)}

    def log_posterior(flat: Array) -> float:
        p, x = parts(flat), np.asarray(given["x"])
        factors = np.zeros((k, d, d))
        column, row = np.triu_indices(d, 1)  # column by column
        factors[:, row, column] = p["l"]
        factors[:, range(d), range(d)] = np.exp(p["q"])
        white = np.einsum("cji,pci->pcj", factors, x[:, None] - p["mu"])
        densities = np.linalg.det(factors) * np.exp(-0.5 * (white**2).sum(-1)) / (2 * np.pi) ** (d / 2)
        freedom = d + given["m"] + 1
        gammas = 0.25 * d * (d - 1) * math.log(math.pi) + sum(math.lgamma(0.5 * (freedom - j)) for j in range(d))
        prior = freedom * d * math.log(given["gamma"] / math.sqrt(2)) - gammas
        prior += given["m"] * p["q"].sum(-1) - 0.5 * given["gamma"] ** 2 * (factors**2).sum((1, 2))
        shares = np.exp(p["alpha"]) / np.exp(p["alpha"]).sum()
        return float(np.log((shares * densities).sum(-1)).sum() + prior.sum())

    inputs = given | {name: part.tolist() for name, part in parts(start).items()}
    assert answered("gmm", "objective", inputs) == pytest.approx(log_posterior(start), rel=1e-12)
    found, wanted = answered("gmm", "jacobian", inputs), parts(differences(log_posterior, start))
    for name, part in wanted.items():
        np.testing.assert_allclose(found[name], part, rtol=1e-6, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("turned", [True, False])
def test_ba(turned: bool) -> None:
    rng = np.random.default_rng(7)
    n, m, p = 3, 5, 7
    camera = np.concatenate((0.3 * rng.normal(size=3) * turned, [0.1, 0.2, -4.0, 50.0, 32.0, 24.0, 1e-2, -1e-3]))
    start = np.concatenate((camera, rng.normal(size=3), [0.8]))
    measured = np.array([30.0, 20.0])

    def errors(v: Array) -> Array:
        """Of one observation, with the rotation as the exponential of a matrix."""
        cross = np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])
        rotation = sum((np.linalg.matrix_power(cross, k) / math.factorial(k) for k in range(1, 20)), np.eye(3))
        seen = rotation @ (v[11:14] - v[3:6])
        plane = seen[:2] / seen[2]
        r = plane @ plane
        return np.append(v[14] * ((1 + v[9] * r + v[10] * r * r) * plane * v[6] + v[7:9] - measured), 1 - v[14] ** 2)

    given = {"n": n, "m": m, "p": p, "cam": camera.tolist(), "x": start[11:14].tolist(), "w": start[14], "feat": measured.tolist()}
    found = answered("ba", "objective", given)
    assert found["reproj_error"]["repeated"] == found["w_err"]["repeated"] == p
    np.testing.assert_allclose([*found["reproj_error"]["elements"], found["w_err"]["element"]], errors(start), rtol=1e-12)
    jacobian, wanted = answered("ba", "jacobian", given), differences(errors, start)
    np.testing.assert_allclose(jacobian["vals"], [*wanted[:2].ravel(), wanted[2, 14]], rtol=1e-6, atol=1e-6)
    # of the first two rows, which observe camera 0 and point 0, and of the last
    columns = [*range(11), 33, 34, 35, 48]
    assert jacobian["cols"] == [*columns, *columns, 11 * n + 3 * m + p - 1]
    assert jacobian["rows"][:15] == [*range(0, 15 * 2 * p, 15), 15 * 2 * p] and jacobian["rows"][-1] == 31 * p


def test_the_rows_of_ba_are_those_of_its_whole_jacobian() -> None:
    from benchmarks.gradbench.evals.ba import Program

    rng = np.random.default_rng(8)
    camera = [0.1, 0.2, 0.3, 0.1, 0.2, -4.0, 50.0, 32.0, 24.0, 1e-2, -1e-3]
    program = Program({"n": 2, "m": 3, "p": 4, "cam": camera, "x": [0.1, 0.2, 0.3], "w": 0.5, "feat": [1.0, 2.0]})
    program.cameras += 0.01 * rng.normal(size=(2, 11))
    program.points += 0.01 * rng.normal(size=(3, 3))

    def errors(flat: Array) -> Array:
        program.cameras[...], program.points[...] = flat[:22].reshape(2, 11), flat[22:31].reshape(3, 3)
        program.weights.primal[...] = flat[31:]
        program.errors()
        return np.concatenate((program.error.primal.ravel(), program.weight_error.primal))

    start = np.concatenate((program.cameras.ravel(), program.points.ravel(), program.weights.primal))
    wanted = differences(errors, start)
    errors(start)
    program.jacobian()
    dense = np.zeros((12, 35))
    for row in range(12):
        entries = slice(program.rows[row], program.rows[row + 1])
        dense[row, program.columns[entries]] = program.values[entries]
    np.testing.assert_allclose(dense, wanted, rtol=1e-6, atol=1e-6)


def test_lstm() -> None:
    layers, b, c = 2, 3, 5
    rng = np.random.default_rng(9)
    start = rng.normal(size=8 * layers * b + 3 * b)
    state, sequence = rng.normal(size=(2 * layers, b)), rng.integers(0, 2, (c, b)).astype(float)

    def unpacked(flat: Array) -> tuple[Array, Array]:
        return flat[: 8 * layers * b].reshape(2 * layers, 4 * b), flat[8 * layers * b :].reshape(3, b)

    def loss(flat: Array) -> float:
        weights, (inner, outer, bias) = unpacked(flat)
        now, total = state.copy(), 0.0
        for t in range(c - 1):
            x = sequence[t] * inner
            for layer in range(layers):
                w, v = (part.reshape(4, b) for part in weights[2 * layer : 2 * layer + 2])
                h = now[2 * layer].copy()
                forget, ingate, outgate = (1 / (1 + np.exp(-(y * w[g] + v[g]))) for g, y in ((0, x), (1, h), (2, x)))
                now[2 * layer + 1] = now[2 * layer + 1] * forget + ingate * np.tanh(h * w[3] + v[3])
                x = now[2 * layer] = outgate * np.tanh(now[2 * layer + 1])
            y = x * outer + bias
            total += (sequence[t + 1] * (y - np.log(2 + np.exp(y).sum()))).sum()
        return float(-total / (b * (c - 1)))

    weights, ends = unpacked(start)
    given = {"main_params": weights.tolist(), "extra_params": ends.tolist(), "state": state.tolist(), "sequence": sequence.tolist()}
    assert answered("lstm", "objective", given) == pytest.approx(loss(start), rel=1e-13)
    np.testing.assert_allclose(answered("lstm", "jacobian", given), differences(loss, start), rtol=1e-6, atol=1e-9)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("complicated", [False, True])
@pytest.mark.parametrize("mirrored", [False, True])
def test_ht(complicated: bool, mirrored: bool) -> None:
    rng = np.random.default_rng(10)
    bones, corners, n = 22, 12, 5
    parents = [-1, *(p for f in range(5) for p in (0, 1 + 4 * f, 2 + 4 * f, 3 + 4 * f)), 0]
    relative, rest = (np.concatenate((rng.normal(size=(bones, 3, 4)), np.tile([0.0, 0, 0, 1], (bones, 1, 1))), axis=1) for _ in range(2))
    weights = rng.random((corners, bones)) * (rng.random((corners, bones)) < 0.3)
    base = np.append(rng.normal(size=(corners, 3)), np.ones((corners, 1)), axis=1)
    triangles = rng.integers(0, corners, (9, 3))
    which, points = rng.integers(0, 9, n), rng.normal(size=(n, 3))
    theta, us = rng.normal(size=26), rng.random((n, 2))

    def errors(theta: Array, us: Array) -> Array:
        transforms: list[Array] = []
        for bone in range(bones):
            turn = np.eye(4)
            if 1 <= bone <= 20 and (bone - 1) % 4:
                angles = theta[6 + 4 * ((bone - 1) // 4) :][:4]
                bend = angles[[0, 0, 2, 3][(bone - 1) % 4]]
                spread = angles[1] if (bone - 1) % 4 == 1 else 0.0
                about_x, about_z = np.eye(3), np.eye(3)
                about_x[1:, 1:] = [[math.cos(bend), -math.sin(bend)], [math.sin(bend), math.cos(bend)]]
                about_z[:2, :2] = [[math.cos(spread), -math.sin(spread)], [math.sin(spread), math.cos(spread)]]
                turn[:3, :3] = about_z @ about_x
            own = relative[bone] @ turn
            transforms.append(own if parents[bone] < 0 else transforms[parents[bone]] @ own)
        moved = np.einsum("vb,bij,vj->vi", weights, np.stack([t @ r for t, r in zip(transforms, rest, strict=True)]), base)[:, :3]
        moved *= [-1 if mirrored else 1, 1, 1]
        cross = np.array([[0, -theta[2], theta[1]], [theta[2], 0, -theta[0]], [-theta[1], theta[0], 0]])
        rotation = sum((np.linalg.matrix_power(cross, k) / math.factorial(k) for k in range(1, 30)), np.eye(3))
        placed = moved @ rotation.T + theta[3:6]
        shares = np.stack((us[:, 0], us[:, 1], 1 - us.sum(axis=1)), axis=1)
        return (points - ((shares[:, :, None] * placed[triangles[which]]).sum(axis=1) if complicated else placed[which])).ravel()

    model = {"bone_names": [str(b) for b in range(bones)], "parents": parents, "weights": weights.tolist(), "is_mirrored": mirrored}
    model |= {"base_relatives": relative.tolist(), "inverse_base_absolutes": rest.tolist(), "base_positions": base.tolist()}
    model |= {"triangles": triangles.tolist()}
    data = {"model": model, "correspondences": which.tolist(), "points": points.tolist()}
    given = {"theta": theta.tolist(), "data": data, "us": us.tolist() if complicated else []}
    np.testing.assert_allclose(answered("ht", "objective", given), errors(theta, us), rtol=1e-10, atol=1e-10)
    wanted = differences(lambda theta: errors(theta, us), theta)
    if complicated:  # a coordinate's effect on its own point
        by_us = np.stack([differences(lambda u, c=c: errors(theta, us + np.eye(2)[c] * u[0]), np.zeros(1))[:, 0] for c in range(2)], axis=1)
        wanted = np.concatenate((by_us, wanted), axis=1)
    np.testing.assert_allclose(answered("ht", "jacobian", given), wanted, rtol=1e-5, atol=1e-5)


def test_ht_at_rest_is_not_turned() -> None:
    """Below 1e-4 the rotation is the identity, as the eval has it, and its derivative 0."""
    one = np.eye(4)[None].tolist()
    model = {"parents": [-1], "weights": [[1.0]], "is_mirrored": False, "base_positions": [[1.0, 2.0, 3.0, 1.0]], "triangles": []}
    model |= {"base_relatives": one, "inverse_base_absolutes": one}
    given = {"theta": [0.0] * 26, "data": {"model": model, "correspondences": [0], "points": [[0.0] * 3]}, "us": []}
    assert answered("ht", "objective", given) == [-1.0, -2.0, -3.0]
    np.testing.assert_array_equal(answered("ht", "jacobian", given), np.eye(26)[3:6] * -1.0)


# --- messages ------------------------------------------------------------------------------------------------------------------------


def test_the_messages_of_a_session_are_answered_line_by_line() -> None:
    given = {"x": [0.0, 0.0], "min_runs": 3}
    messages = [
        {"kind": "start", "eval": "lse"},
        {"kind": "define", "module": "lse"},
        {"kind": "evaluate", "module": "lse", "function": "primal", "input": given},
        {"kind": "analysis", "of": 2, "valid": True},
        {"kind": "define", "module": "particle"},
        {"kind": "evaluate", "module": "lse", "function": "primal", "input": {}},
    ]
    out = StringIO()
    tool.serve([json.dumps({"id": k} | m) for k, m in enumerate(messages)], out)
    start, define, evaluate, analysis, unknown, broken = map(json.loads, out.getvalue().splitlines())
    assert start == {"id": 0, "tool": "gpuad"}
    assert define == {"id": 1, "success": True}
    assert evaluate["id"] == 2 and evaluate["output"] == pytest.approx(math.log(2)) and len(evaluate["timings"]) == 4
    assert analysis == {"id": 3}
    assert not unknown["success"] and "no answer to the eval 'particle'" in unknown["error"]
    assert not broken["success"] and "KeyError: 'x'" in broken["error"]


def test_runs_go_on_until_enough_seconds_have_passed() -> None:
    found = tool.evaluated(lambda given: lambda: np.float64(2), {"min_runs": 1, "min_seconds": 0.01})
    assert found["output"] == 2.0 and sum(t["nanoseconds"] for t in found["timings"][1:]) >= 0.01e9


@pytest.mark.parametrize("name", NAMES)
def test_each_eval_has_its_functions(name: str) -> None:
    assert len(functions_of(name)) == 2


EVAL = """
import json, sys
def send(message):
    print(json.dumps(message), flush=True)
    return json.loads(sys.stdin.readline())
send({"id": 0, "kind": "start"})
assert send({"id": 1, "kind": "define", "module": "lse"})["success"]
found = send({"id": 2, "kind": "evaluate", "module": "lse", "function": "primal", "description": "n=2", "input": {"x": [1, 1]}})
send({"id": 3, "kind": "analysis", "of": 2, "valid": found["output"] == 3.0})
found = send({"id": 4, "kind": "evaluate", "module": "lse", "function": "gradient", "description": "n=2", "input": {"x": [1, 1]}})
send({"id": 5, "kind": "analysis", "of": 4, "valid": False, "error": "no"})
"""
TOOL = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"id": message["id"], "success": WANTED}
    if message["kind"] == "evaluate":
        answer["success"] = "gradient" != message["function"] or OUTPUT == 3.0
        timings = [{"name": "prepare", "nanoseconds": 9}, {"name": "evaluate", "nanoseconds": 2000000}]
        answer |= {"output": OUTPUT, "error": "cannot", "timings": timings}
    print(json.dumps(answer), flush=True)
"""


def started(text: str, folder: Path) -> exchange.Command:
    return exchange.Command([sys.executable, "-c", text], folder, os.environ)


def test_an_eval_hears_gpuad_and_the_others_are_compared(tmp_path: Path) -> None:
    tools = {
        "gpuad": started(TOOL.replace("OUTPUT", "3.0").replace("WANTED", "True"), tmp_path),
        "manual": started(TOOL.replace("OUTPUT", "3.1").replace("WANTED", "True"), tmp_path),
        "absent": started(TOOL.replace("OUTPUT", "3.1").replace("WANTED", "False"), tmp_path),
    }
    value, gradient = exchange.run(started(EVAL, tmp_path), tools, rounds=2)
    assert (value["function"], value["size"], value["valid"]) == ("primal", "n=2", True)
    assert value["tools"]["gpuad"] == {"ms": 2.0, "median_ms": 2.0, "runs": 2}
    assert value["tools"]["manual"]["agrees"] is False and set(value["tools"]) == {"gpuad", "manual"}
    assert gradient["valid"] is False and gradient["error"] == "no" and gradient["tools"]["manual"] == {"failed": "cannot"}


def test_a_tool_that_ends_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the tool has ended; the message was start"):
        list(exchange.run(started(EVAL, tmp_path), {"gpuad": started("", tmp_path)}, rounds=1))


def test_outputs_agree_as_gradbench_means_it() -> None:
    assert exchange.agree({"a": [1.0, 2]}, {"a": [1.0001, 2]}) and exchange.agree(1e6, 1e6 + 100)
    assert not exchange.agree({"a": [1.0]}, {"a": [1.001]})
    assert not exchange.agree([1.0], [1.0, 2.0])
    assert not exchange.agree({"a": 1}, {"b": 1}) and not exchange.agree(float("nan"), 1.0)


def test_published_times_are_ratios_to_manual_at_the_last_size_of_both(tmp_path: Path) -> None:
    def took(**seconds: float) -> dict[str, Any]:
        return {size: {"primal": None, "derivative": {"secs": int(s), "nanos": round(s % 1 * 1e9)}} for size, s in seconds.items()}

    tools = {"manual": took(a=1e-4, b=0.5, c=1.0), "enzyme": took(a=1.0, b=1.0, c=3.5), "pytorch": took(a=1.0, b=2.0)}
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"tools": tools | {"jax": {"b": {"primal": None}}}}))
    assert published.ratios(path) == {"enzyme": 3.5, "pytorch": 4.0}
    assert published.ratios(tmp_path / "absent.json") == {}
