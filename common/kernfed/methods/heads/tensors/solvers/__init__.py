"""Solvers of local Newton systems H X = G, one a file, behind one signature: (HeadHessian, G, Limits) -> Solution.

d features, C outputs, n rows. Costs and memory per system, after the FedNewton paper's Table 2, whose "d" is the number
of parameters, here d C:

| solver | time | memory | what it solves |
|---|---|---|---|
| exact | n d² C²/2 + (d C)³/3 | (d C)² | H; d x d for uncoupled outputs, rows x rows where those are fewer |
| cg | 4 n d C per iteration | d C | H, to a tolerance |
| lanczos | 4 n d C per iteration, d C k² | d C k | H on its leading eigenvectors, a multiple of I beside them |
| eigen | 12 n d C (k + 5) per iteration | 3 d C (k + 5) | H on its true leading eigenvectors, likewise |
| diagonal, fisher | n d C | d C | the diagonal of H, or of the empirical Fisher information |

The sixth, L-BFGS, needs no system: `kernfed.methods.heads.lbfgs` keeps its history at the coordinator.
"""
