"""Pages of HTML that stand alone, for browsers and notebooks. Nothing is fetched."""
