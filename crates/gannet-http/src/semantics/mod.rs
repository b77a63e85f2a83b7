//! HTTP semantics (RFC 9110), the same for every version of the protocol.

pub mod coding;
pub mod date;
pub mod decimal;
pub mod entity_tag;
pub mod field_names;
pub mod fields;
pub mod kept;
pub mod limits;
pub mod range;
pub mod ready_fields;
pub mod request;
pub mod response;
pub mod status;
pub mod structured;
pub mod target_path;
