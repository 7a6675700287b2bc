<?php echo json_encode(['served' => 'api']);
