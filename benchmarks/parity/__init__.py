"""Our environments and rewards beside the published code of the systems they follow. See ``__main__``."""
