"""How good results are: methods by volumes by acquisitions, metrics, and tables of them.

Begin with `paired`.
"""
