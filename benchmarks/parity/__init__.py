"""Our environments and rewards compared with the published code of the systems they follow. See ``__main__``."""
