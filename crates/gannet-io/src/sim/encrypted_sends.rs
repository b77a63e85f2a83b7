//! How the virtual kernel sends on a socket whose records it encrypts.

use rustix::io::Errno;

use crate::driver::Socket;
use crate::ktls::{ControlRecord, TxKeys};
use crate::sim::world::World;

impl World {
    /// Queues application data, encrypted if the kernel encrypts.
    pub(super) fn queue(&mut self, socket: Socket, bytes: &[u8]) {
        let encrypted = self.sockets[socket.0 as usize]
            .encrypting
            .as_mut()
            .map(|encrypting| encrypting.encrypt_data(bytes));
        match encrypted {
            Some(encrypted) => self.connection(socket).queue_encrypted(&encrypted),
            None => self.connection(socket).queue_bytes(bytes),
        }
    }

    pub(super) fn encrypt_in_kernel(
        &mut self,
        socket: Socket,
        keys: &TxKeys<'_>,
    ) -> Result<(), Errno> {
        let endpoint = &mut self.sockets[socket.0 as usize];
        assert!(endpoint.sending.is_none(), "keys change between sends");
        let model = self.kernel_tls.as_ref().ok_or(Errno::NOENT)?;
        if endpoint.encrypting.is_some() && !model.can_update_keys {
            return Err(Errno::BUSY);
        }
        endpoint.encrypting = Some(model.encrypting(keys));
        Ok(())
    }

    /// What an end of our half does to records that the kernel still holds: it loses some of them.
    pub(super) fn lose_held_records(&mut self, socket: Socket) {
        let held = self.connection(socket).held();
        if held > 0 {
            let lost = 1 + self.random.below(held as u64) as usize;
            self.connection(socket).drop_last(lost);
        }
    }

    /// Queues a control record.
    pub(super) fn queue_control(&mut self, socket: Socket, record: &ControlRecord) {
        let encrypting = self.sockets[socket.0 as usize].encrypting.as_mut();
        let encrypting = encrypting.expect("asserted when the send was asked for");
        let encrypted = encrypting.encrypt(record.control() as u8, record.content());
        self.connection(socket).queue_encrypted(&encrypted);
    }
}
