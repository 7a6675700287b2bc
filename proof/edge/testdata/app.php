<?php // Says what PHP reads in a request: in X-Seen what a message is about, in the body what a limit may be about.
$text = fn($value) => is_array($value) ? implode(',', array_filter($value, 'is_string')) : (string) $value;
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: '';
$body = file_get_contents('php://input');
header('X-Seen: ' . implode(' ', [
    $_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI'], $_SERVER['HTTP_HOST'] ?? '-', strlen($body), substr(hash('sha256', $body), 0, 8), $_SERVER['HTTP_USER_AGENT'] ?? '-',
]));
echo json_encode([
    'method' => strtoupper($_SERVER['REQUEST_METHOD']), // as Symfony reads it
    'header' => $_SERVER['HTTP_X_API_KEY'] ?? '',
    'query' => $text($_GET['sku_id'] ?? ''),
    'cookie' => $text($_COOKIE['session'] ?? ''),
    'admin' => (bool) preg_match('#^/admin(/|\z)#', rawurldecode($path)),
    'length' => $_SERVER['HTTP_CONTENT_LENGTH'] ?? '',
], JSON_INVALID_UTF8_SUBSTITUTE);
