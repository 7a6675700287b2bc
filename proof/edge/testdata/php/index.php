<?php echo json_encode(['served' => 'page']);
