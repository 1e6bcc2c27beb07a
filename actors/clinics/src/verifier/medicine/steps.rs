//! Count of the steps of a check, for tests that its time is linear.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts one step: a token examined, or two claims compared. Does nothing outside tests.
#[cfg_attr(not(test), inline(always))]
pub(super) fn count_step() {
    #[cfg(test)]
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// Returns the number of steps of this thread that `work` takes.
#[cfg(test)]
pub(super) fn steps_of(work: impl FnOnce()) -> u64 {
    let before = STEPS.with(std::cell::Cell::get);
    work();
    STEPS.with(std::cell::Cell::get) - before
}
