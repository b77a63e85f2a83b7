//! The trial of a sandbox, while the process changes its user: in a program of its own, as that concerns all
//! threads, and the C library ends a program of which one thread may not.

use std::thread;

use gannet_io::sandbox::Kernel;

#[test]
fn the_user_can_be_changed_during_a_trial() {
    thread::scope(|scope| {
        let trials = scope.spawn(|| {
            for _ in 0..20 {
                let _ = Kernel::look();
            }
        });
        let same = libc::gid_t::MAX;
        while !trials.is_finished() {
            // SAFETY: no memory is involved. Nothing changes.
            assert_eq!(unsafe { libc::setresgid(same, same, same) }, 0);
        }
    });
}
