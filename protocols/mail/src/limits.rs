//! Every bound of agent mail at its edge, with its unit.
