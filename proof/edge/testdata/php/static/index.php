<?php echo json_encode(['served' => 'static']);
