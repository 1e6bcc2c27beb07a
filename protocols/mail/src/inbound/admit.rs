//! Who calls: the credential, and the claim that must match it.
