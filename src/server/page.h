// The page at `/`: about the model, and a box to try it.
#pragma once

namespace lockstep::server {

inline constexpr const char* kPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Lockstep</title></head><body></body></html>
)html";

}  // namespace lockstep::server
