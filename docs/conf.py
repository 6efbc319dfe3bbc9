"""The site: Markdown pages, notebooks that run when it is built, and docstrings of public names.

`make site` builds it into docs/_build/html without a network; every warning is an error.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

# Commands that a page shows are those of the environment that builds it.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

import fpsim

project = "fpsim"
author = "the fpsim developers"
project_copyright = "the fpsim developers"
version = release = fpsim.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinxcontrib.programoutput",
    "docstrings",
    "recorded_outputs",
    "operator_table",
    "unit_evidence",
    "formats_for_scripts",
    "experiment_pages",
]
exclude_patterns = ["_build", "extensions"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "smartquotes"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_show_tb = True
# A cell may write files.
nb_execution_in_temp = True
# Outputs that are compared must not depend on how a stream was cut.
nb_merge_streams = True
# What libraries tell a terminal (TensorFlow its processor) is no result.
nb_output_stderr = "remove"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

#: No page: types of other projects, whose inventories a build without a network does not have;
#: types of inner modules in signatures; and what an annotation says beside a type.
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|np|collections|contextlib|fractions|hypothesis|pathlib|types|typing)\..*"),
    ("py:.*", r"(click|scipy|matplotlib|torch)\..*"),
    ("py:class", r"(fpsim|ipu)(\.[a-z_]+)+\._?[A-Z]\w*"),
    ("py:class", r".*[^\w.].*|[A-Z]\w*"),
]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"fpsim {release}"
html_static_path = ["static"]
html_css_files = ["figure.css", "fpsim.css"]
html_js_files = ["keyboard.js", "versions.js"]
html_copy_source = False
html_show_copyright = False
