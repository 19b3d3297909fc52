"""Code that all rooms share: background work, files, ids, outbound HTTP, texts, figures. It knows no run, person or
page."""
