"""Texts of a drawn figure, and the panels of a page."""

from xml.etree import ElementTree

PANELS = (
    "layer_change-pwcca",
    "layer_change-debiased_cka",
    "token_information-cross_fitted",
    "token_information-plug_in",
)


def texts_of(drawn):
    """The texts of a figure."""
    return [
        "".join(text.itertext()) for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    ]
