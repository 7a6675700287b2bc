<?php // Says what PHP reads in a request.
$text = fn($value) => is_array($value) ? implode(',', array_filter($value, 'is_string')) : (string) $value;
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '';
echo json_encode([
    'header' => $_SERVER['HTTP_X_API_KEY'] ?? '',
    'query' => $text($_GET['sku_id'] ?? ''),
    'cookie' => $text($_COOKIE['session'] ?? ''),
    'admin' => (bool) preg_match('#^/admin(/|\z)#', rawurldecode($path)),
    'length' => $_SERVER['HTTP_CONTENT_LENGTH'] ?? '',
], JSON_INVALID_UTF8_SUBSTITUTE);
