//! Fields that a site gets without asking: how long to keep content, and what a browser may do.
