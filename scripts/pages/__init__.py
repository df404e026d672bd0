"""What people look at: the page of a scan, the index of a folder, and planes as radiologists hang them.

Begin with `page.write_page`.
"""
