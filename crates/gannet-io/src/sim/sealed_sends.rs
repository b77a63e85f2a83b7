//! What the virtual kernel does with sends on a socket whose records it seals.

use rustix::io::Errno;

use crate::driver::Socket;
use crate::ktls::{ControlRecord, TxKeys};
use crate::sim::world::World;

impl World {
    /// Queues application data, sealed where the kernel seals.
    pub(super) fn queue(&mut self, socket: Socket, bytes: &[u8]) {
        let sealed = self.sockets[socket.0 as usize]
            .sealing
            .as_mut()
            .map(|sealing| sealing.seal_data(bytes));
        self.connection(socket)
            .queue_bytes(sealed.as_deref().unwrap_or(bytes));
    }

    pub(super) fn seal_in_kernel(
        &mut self,
        socket: Socket,
        keys: &TxKeys<'_>,
    ) -> Result<(), Errno> {
        let endpoint = &mut self.sockets[socket.0 as usize];
        assert!(endpoint.sending.is_none(), "keys change between sends");
        let model = self.kernel_tls.as_ref().ok_or(Errno::NOENT)?;
        if endpoint.sealing.is_some() && !model.can_update_keys {
            return Err(Errno::BUSY);
        }
        endpoint.sealing = Some(model.sealing(keys));
        Ok(())
    }

    /// Queues a control record.
    pub(super) fn queue_control(&mut self, socket: Socket, record: &ControlRecord) {
        let sealing = self.sockets[socket.0 as usize].sealing.as_mut();
        let sealing = sealing.expect("asserted when the send was asked for");
        let sealed = sealing.seal(record.control() as u8, record.content());
        self.connection(socket).queue_bytes(&sealed);
    }
}
