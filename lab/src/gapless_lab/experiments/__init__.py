"""Experiments: the claims of the papers, measured again. One package for each paper.

In each, `experiment` says what is played, `claims` judges it by bounds that stand there, and
`figures` draws it; `real` plays it with broker processes. `catalogue` lists them, `runs` is a run
that shares nothing with others, and `players` plays such runs on all cores or by Spark.
"""
