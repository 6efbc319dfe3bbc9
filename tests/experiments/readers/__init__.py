"""Readers of pages: they compute every number of a sentence again from data.csv alone.

They import nothing of this project: a page's text, the file inside the page, numpy and scipy.
"""
