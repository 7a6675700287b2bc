<?php echo json_encode(['served' => 'checkout']);
